# A self-contained HTML page as a part of a binary.

# sluice_base64_of_hex(HEX OUT): the base64 form of the bytes that HEX, of 64 digits, stands for.
function(sluice_base64_of_hex hex out)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(text "")
  # Three hexadecimal digits are two of base64; two zeros make 66 digits of the 64.
  foreach(at RANGE 0 63 3)
    string(SUBSTRING "${hex}00" ${at} 3 digits)
    math(EXPR high "0x${digits} / 64")
    math(EXPR low "0x${digits} % 64")
    string(SUBSTRING "${alphabet}" ${high} 1 high)
    string(SUBSTRING "${alphabet}" ${low} 1 low)
    string(APPEND text "${high}${low}")
  endforeach()
  # 32 bytes end in one digit of padding.
  string(SUBSTRING "${text}" 0 43 text)
  set(${out} "${text}=" PARENT_SCOPE)
endfunction()

# sluice_csp_hash(PAGE TAG OUT): the source expression of a Content-Security-Policy that allows what is
# between <TAG> and </TAG> of the text PAGE, which has one such element.
function(sluice_csp_hash page tag out)
  string(FIND "${page}" "<${tag}>" from)
  string(FIND "${page}" "</${tag}>" to)
  string(LENGTH "<${tag}>" length)
  math(EXPR from "${from} + ${length}")
  math(EXPR length "${to} - ${from}")
  string(SUBSTRING "${page}" ${from} ${length} content)
  string(SHA256 hex "${content}")
  sluice_base64_of_hex(${hex} base64)
  set(${out} "sha256-${base64}" PARENT_SCOPE)
endfunction()
