# sluice_embed_texts(OUT FUNCTION files ...) sets OUT to the name of a source that defines
# std::span<const std::string_view> sluice::FUNCTION(), which returns the contents of the files.
# The list of files may be empty. Requires that no file contains )__text__".
set(SLUICE_TEXTS_TEMPLATE ${CMAKE_CURRENT_LIST_DIR}/embedded_texts.cc.in)
function(sluice_embed_texts out function)
  set(TEXTS "")
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    string(APPEND TEXTS "      R\"__text__(${text})__text__\",\n")
  endforeach()
  set(FUNCTION ${function})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc)
  configure_file(${SLUICE_TEXTS_TEMPLATE} ${source} @ONLY)
  set(${out} ${source} PARENT_SCOPE)
endfunction()
