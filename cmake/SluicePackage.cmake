# Installs the programs, and makes a Debian package of them.
#
#   deploy/package.sh deb
#
# The component `programs` can be moved as a whole: bin/ finds the shared libraries in lib/sluice
# next to it, so the package needs only the C library of the system. deploy/make_wheel.py packs the
# same component. The component `system` is for the Debian package only. A build for ARM64 finds the
# libraries in its own root, and runs its programs under qemu to write the man pages.

set(programs sluiced sluice sluice-analysis)
foreach(program IN LISTS programs)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/sluice")
  # RPATH, unlike RUNPATH, also applies to the libraries of the libraries.
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()

set(directories "")
if(CMAKE_CROSSCOMPILING)
  set(directories DIRECTORIES ${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
endif()
install(TARGETS ${programs} RUNTIME_DEPENDENCY_SET libraries
  DESTINATION bin COMPONENT programs)
install(RUNTIME_DEPENDENCY_SET libraries
  # The C library and its loader must be the system's.
  PRE_EXCLUDE_REGEXES "^(lib(c|m|dl|rt|pthread|resolv|util)|ld-linux.*)[.]so"
  ${directories}
  DESTINATION lib/sluice COMPONENT programs)
install(FILES models/demo/config.json models/demo/model.safetensors
  DESTINATION share/sluice/models/demo COMPONENT programs)
install(CODE "execute_process(COMMAND \"${SLUICE_PYTHON}\"
  \"${PROJECT_SOURCE_DIR}/deploy/copy_licences.py\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\"
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT programs)

set(system ${PROJECT_BINARY_DIR}/system)
file(READ deploy/systemd/sluiced.service unit)
# The first lines describe an installation by hand.
string(REGEX REPLACE "^(#[^\n]*\n)+" "" unit "${unit}")
string(REPLACE /usr/local/bin/ /usr/bin/ unit "${unit}")
string(REPLACE DynamicUser=yes User=sluice unit "${unit}")
file(CONFIGURE OUTPUT ${system}/sluiced.service CONTENT "${unit}" @ONLY)
file(READ config/sluice.yaml options)
string(REPLACE "\nmodels: []\n"
  "\nmodels:\n  - {name: demo, path: /usr/share/sluice/models/demo}\n" options "${options}")
string(REPLACE "\n    file: \"\"\n" "\n    file: /var/lib/sluice/ladder\n" options "${options}")
file(CONFIGURE OUTPUT ${system}/sluice.yaml CONTENT "${options}" @ONLY)
install(FILES ${system}/sluiced.service DESTINATION lib/systemd/system COMPONENT system)
install(FILES ${system}/sluice.yaml DESTINATION /etc/sluice COMPONENT system)
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
install(CODE "execute_process(COMMAND \"${SLUICE_PYTHON}\"
  \"${PROJECT_SOURCE_DIR}/tools/make_man.py\" --build \"${PROJECT_BINARY_DIR}\"
  \"--emulator=${emulator}\"
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/man/man1\"
  COMMAND_ERROR_IS_FATAL ANY)" COMPONENT system)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VENDOR "Sluice")
set(CPACK_PACKAGE_CONTACT "Sluice maintainers <maintainers@sluice.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "gRPC inference server for transformer models")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"The daemon sluiced serves transformer models over gRPC, and sluice is its client.
 The shared libraries that both need are included.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
if(SLUICE_ARM64)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), passwd")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/conffiles ${PROJECT_SOURCE_DIR}/deploy/debian/postinst
  ${PROJECT_SOURCE_DIR}/deploy/debian/prerm ${PROJECT_SOURCE_DIR}/deploy/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
